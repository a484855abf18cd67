# The shell kernel. The shell reads this, and then its requests, as a script
# from descriptor 0. KEY, INTERPRETER and the F_ words are filled in: the key,
# the shell itself, and the numbers of our descriptors (high ones in bash; a
# POSIX shell has only 3 to 9). A line that begins with "#bash ", "#sh " or
# "#first " is for that kind of shell, or for the first shell of a context.
#
# Between runs descriptors 1 and 2 are /dev/null, so that options such as -x
# show nothing of ours. A run is "eval" of the code with the run's descriptors:
# what the code does to 0, 1 and 2 ends with it.
#
# When code ends the shell (exit, set -e, an interrupt), the handler of EXIT
# saves what the shell knew behind the code in the file of code, reports the
# end of the run, and executes a fresh shell in the same process, for which the
# guest sends this again and what restores what was saved.
#first exec F_REQ<&3 F_EVT>&4 F_COD<&5 F_INP<&6 F_OUT>&1 F_ERR>&2
#bash #first exec 3<&- 4>&- 5<&- 6<&-
exec 1>/dev/null 2>/dev/null
__gb_key='KEY'
__gb_id=
__gb_say() {
	command printf '%s.%s' "$__gb_key" "$1" >&F_EVT
}
__gb_read() {
#bash 	IFS= builtin read -r -d '' -u F_COD __gb_code || :
#sh 	__gb_code=$(command cat <&F_COD)
}
__gb_begin() {
	__gb_id=$1
	__gb_read
}
__gb_end() {
	__gb_say '{"ev":"end","id":'"$__gb_id"',"exit_code":'"$1${2-}"'}'
	__gb_id=
}
__gb_env_back() { :; }
#bash __gb_save() {
#bash 	builtin local __gb_v
#bash 	for __gb_v in $(builtin compgen -v); do
#bash 		case $__gb_v in
#bash 		BASH* | DIRSTACK | EPOCH* | EUID | UID | FUNCNAME | GROUPS | HOSTNAME | HOSTTYPE | MACHTYPE | OSTYPE) ;;
#bash 		LINENO | OPTERR | PIPESTATUS | PPID | RANDOM | SRANDOM | SECONDS | SHELLOPTS | SHLVL | _ | __gb_*) ;;
#bash 		*) builtin declare -p "$__gb_v" ;;
#bash 		esac
#bash 	done
#bash 	builtin declare -f
#bash 	builtin alias -p
#bash 	builtin trap -p
#bash 	for __gb_v in ${1//:/ }; do builtin printf 'set -o %s\n' "$__gb_v"; done
#bash 	for __gb_v in ${BASHOPTS//:/ }; do builtin printf 'shopt -s %s\n' "$__gb_v"; done
#bash }
__gb_exit() {
	trap - EXIT
	trap : INT
#bash 	__gb_options=$SHELLOPTS
	set +efux
	exec 1>/dev/null 2>/dev/null
	__gb_env_back
	IFS=' 	
'
#bash 	unset __gb_code
#bash 	__gb_save "$__gb_options" >&F_COD
	[ -z "$__gb_id" ] || __gb_end "$1" ',"restart":true'
	trap - INT
	exec INTERPRETER <&F_REQ
}
__gb_traps() {
	trap '__gb_exit $?' EXIT
	trap '[ -z "$__gb_id" ] || exit 130' INT
}
__gb_traps
__gb_ready() {
#bash 	__gb_say '{"ev":"ready","language":"bash","version":"'"${BASH_VERSION%%(*}"'"}'
#sh 	__gb_say '{"ev":"ready","language":"sh","version":""}'
}
#first __gb_ready
