package procfs

import "testing"

func TestParseListening(t *testing.T) {
	for line, want := range map[string][2]int{
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0":                                               {4711, 8080},
		"   1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0": {12, 80},
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode":                                                               {},
		"   0: 0100007F:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0":                                               {},
		"   0: 0100007F:FFFFF 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1":                                                             {},
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 x":                                                                   {},
		"   0: 0100007F:1F90 00000000:0000 0A": {},
		"":                                     {},
	} {
		inode, port, ok := parseListening(line)
		if ok != (want[0] != 0) || ok && (int(inode) != want[0] || port != want[1]) {
			t.Errorf("%q: inode %d, port %d, %v", line, inode, port, ok)
		}
	}
}
