package request

import "strings"

// PlainWords returns the words of a shell command that needs no shell. Such a
// command is a program and its arguments, without any text that a usual shell
// would interpret. For any other command it returns nil. It understands quotes
// only, and leaves every uncertain case to the shell.
func PlainWords(command string) []string {
	var words []string
	for rest := strings.Trim(command, blanks); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		word, after, ok := plainWord(rest)
		if !ok {
			return nil
		}
		words, rest = append(words, word), after
	}
	if len(words) == 0 || shellWords[words[0]] || strings.Contains(words[0], "=") {
		return nil
	}
	return words
}

// blanks are the characters that may surround a command. Inside, a newline
// would begin another command.
const blanks = " \t\n"

// plainWord returns the first word of text, which does not begin with a blank,
// and the rest of text.
func plainWord(text string) (word, rest string, ok bool) {
	var b strings.Builder
	for text != "" && text[0] != ' ' && text[0] != '\t' {
		quote := text[0]
		if quote != '\'' && quote != '"' {
			if !isPlain(quote) {
				return "", "", false
			}
			b.WriteByte(quote)
			text = text[1:]
			continue
		}
		quoted, after, closed := strings.Cut(text[1:], string(quote))
		if !closed || quote == '"' && strings.ContainsAny(quoted, "$`\\") {
			return "", "", false
		}
		b.WriteString(quoted)
		text = after
	}
	return b.String(), text, true
}

// isPlain reports whether an unquoted byte stands for itself at any place in a
// word. Bytes above ASCII do so in some shells only, so they do not count.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_-./,:+=@%", c) >= 0
}

// shellWords are words that a shell may not run as the program of that name. They
// are reserved words and built-in commands of POSIX, dash, bash, BusyBox's ash,
// mksh and zsh. Built-in commands that behave like the program are left out. The
// program setsid is included because it forks if it leads its session.
var shellWords = func() map[string]bool {
	m := map[string]bool{"": true}
	for w := range strings.FieldsSeq(`
		. : [ alias autoload bg bind bindkey break builtin bye caller case cd chdir
		command compgen complete compopt continue coproc declare dirs disable disown do
		done echo echotc echoti elif else emulate enable end esac eval exec exit export
		false fc fg fi float for foreach function functions getln getopts hash help
		history if in integer jobs kill let limit local log logout mapfile nameref
		namespace newgrp nocorrect noglob popd print printf pushd pushln pwd read
		readarray readonly rehash rename repeat return sched select set setsid setopt shift shopt
		source stop suspend test then time times trap true ttyctl type typeset ulimit
		umask unalias unfunction unhash unlimit unset unsetopt until vared wait whence
		where while zcompile zle zmodload zparseopts zstyle`) {
		m[w] = true
	}
	return m
}()
