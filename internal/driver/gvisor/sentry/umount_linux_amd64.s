#include "textflag.h"

#define SYS_read 0
#define SYS_clone 56
#define SYS_umount2 166
#define SYS_exit_group 231
#define SYS_close_range 436

#define CLONE_VM 0x100
#define SIGCHLD 17
#define MNT_DETACH 2

// func cloneUmounter(pipe, stack uintptr, path *byte) int
TEXT ·cloneUmounter(SB), NOSPLIT, $0-32
	MOVQ	pipe+0(FP), R12
	MOVQ	stack+8(FP), SI
	MOVQ	path+16(FP), R13
	ANDQ	$~15, SI
	MOVQ	$(CLONE_VM|SIGCHLD), DI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVQ	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	child
	MOVQ	AX, ret+24(FP)
	RET

child:
	// What is before the pipe, but for the standard streams: none if it is the first.
	MOVQ	$3, DI
	LEAQ	-1(R12), SI
	XORL	DX, DX
	MOVQ	$SYS_close_range, AX
	SYSCALL
	// And what is behind it.
	LEAQ	1(R12), DI
	MOVL	$0xffffffff, SI
	XORL	DX, DX
	MOVQ	$SYS_close_range, AX
	SYSCALL

	MOVQ	R12, DI
	LEAQ	-16(SP), SI
	MOVQ	$1, DX
	MOVQ	$SYS_read, AX
	SYSCALL
	MOVQ	$1, DI
	CMPQ	AX, $1
	JNE	exit

	MOVQ	R13, DI
	MOVQ	$MNT_DETACH, SI
	MOVQ	$SYS_umount2, AX
	SYSCALL
	XORL	DI, DI
	TESTQ	AX, AX
	JEQ	exit
	MOVQ	$1, DI

exit:
	MOVQ	$SYS_exit_group, AX
	SYSCALL
	INT	$3
