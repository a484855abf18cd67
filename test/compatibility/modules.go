//go:build unix

package main

// cpythonModules are modules of CPython's regression tests that use the
// operating system, directly or by a library. It excludes modules that take
// minutes or need a network.
var cpythonModules = []string{
	// files
	"test_os", "test_posix", "test_posixpath", "test_genericpath", "test_pathlib", "test_shutil", "test_tempfile",
	"test_stat", "test_glob", "test_filecmp", "test_fileinput", "test_file", "test_fileio", "test_io", "test_bufio",
	"test_largefile", "test_mmap", "test_fcntl", "test_ioctl", "test_unicode_file", "test_unicode_file_functions",
	"test_univnewlines", "test_zipfile", "test_zipimport", "test_zipapp", "test_tarfile", "test_gzip", "test_bz2",
	"test_lzma", "test_zlib", "test_dbm", "test_dbm_dumb", "test_shelve", "test_mailbox", "test_netrc",
	// processes
	"test_subprocess", "test_popen", "test_pipes", "test_fork1", "test_wait3", "test_wait4", "test_signal",
	"test_threadsignals", "test_resource", "test_pty", "test_openpty", "test_faulthandler", "test_atexit",
	"test_cmd_line", "test_cmd_line_script", "test_c_locale_coercion", "test_utf8_mode", "test_runpy", "test_getpass",
	"test_multiprocessing_main_handling", "test_sys", "test_platform", "test_pwd", "test_grp", "test_errno",
	"test_syslog", "test_eintr", "test_script_helper",
	// threads and time
	"test_thread", "test_threading", "test_threading_local", "test_threadedtempfile", "test_queue", "test_sched",
	"test_time", "test_timeout", "test_locale", "test__locale", "test_asyncio", "test_ctypes", "test_uuid",
	// sockets
	"test_socket", "test_socketserver", "test_select", "test_selectors", "test_poll", "test_epoll", "test_asyncore",
	"test_asynchat", "test_ssl", "test_hashlib", "test_httplib", "test_httpservers", "test_urllib2_localnet",
	"test_ftplib", "test_smtplib", "test_xmlrpc", "test_wsgiref",
}

// goPackages are packages of Go's standard library that use the operating
// system.
var goPackages = []string{
	"archive/tar", "archive/zip", "context", "internal/poll", "internal/syscall/unix", "io", "io/fs", "io/ioutil",
	"log/syslog", "mime/multipart", "net", "net/http/httptest", "net/rpc", "net/smtp", "net/textproto", "os", "os/exec",
	"os/signal", "os/user", "path/filepath", "sync", "syscall", "text/template", "time",
}

// gitScripts are some of git's test scripts: for everyday commands, and for
// features that use the operating system.
var gitScripts = []string{
	"t0001-init", "t0005-signals", "t0060-path-utils", "t0061-run-command", "t0301-credential-cache", "t1300-config",
	"t1410-reflog", "t3200-branch", "t3700-add", "t5300-pack-object", "t5601-clone", "t7300-clean", "t7508-status",
	"t9300-fast-import",
}

// nodeGroups are prefixes of the names of Node's tests.
var nodeGroups = []string{"child-process", "dgram", "fs", "net", "os", "pipe", "process", "signal", "stdin", "stdio", "stdout", "tty"}
