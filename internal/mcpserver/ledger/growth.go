package ledger

// JSONGrowth returns the number of additional bytes that a text needs as JSON.
func JSONGrowth(text string) (n int64) {
	for i := range len(text) {
		switch b := text[i]; {
		case b == '"' || b == '\\' || b == '\n' || b == '\r' || b == '\t':
			n++
		case b < ' ' || b == '<' || b == '>' || b == '&' || b == 0x7f:
			n += 5
		}
	}
	return n
}
