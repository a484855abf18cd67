#include "textflag.h"

#define SYS_umount2 39
#define SYS_read 63
#define SYS_exit_group 94
#define SYS_clone 220
#define SYS_close_range 436

#define CLONE_VM 0x100
#define SIGCHLD 17
#define MNT_DETACH 2

// func cloneUmounter(pipe, stack uintptr, path *byte) int
TEXT ·cloneUmounter(SB), NOSPLIT, $0-32
	MOVD	pipe+0(FP), R19
	MOVD	stack+8(FP), R1
	MOVD	path+16(FP), R20
	AND	$~15, R1
	MOVD	$(CLONE_VM|SIGCHLD), R0
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$SYS_clone, R8
	SVC
	CBZ	R0, child
	MOVD	R0, ret+24(FP)
	RET

child:
	// What is before the pipe, but for the standard streams: none if it is the first.
	MOVD	$3, R0
	SUB	$1, R19, R1
	MOVD	ZR, R2
	MOVD	$SYS_close_range, R8
	SVC
	// And what is behind it.
	ADD	$1, R19, R0
	MOVD	$0xffffffff, R1
	MOVD	ZR, R2
	MOVD	$SYS_close_range, R8
	SVC

	MOVD	R19, R0
	MOVD	RSP, R1
	SUB	$16, R1
	MOVD	$1, R2
	MOVD	$SYS_read, R8
	SVC
	MOVD	R0, R3
	MOVD	$1, R0
	CMP	$1, R3
	BNE	exit

	MOVD	R20, R0
	MOVD	$MNT_DETACH, R1
	MOVD	$SYS_umount2, R8
	SVC
	CBZ	R0, exit
	MOVD	$1, R0

exit:
	MOVD	$SYS_exit_group, R8
	SVC
	BRK
