#include "textflag.h"

#define SYS_prctl 157
#define PR_CAPBSET_DROP 24
#define CAP_MOST 63

// func entry()
TEXT ·entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	MOVQ	SP, BX
	MOVQ	0(BX), AX // argc
	TESTQ	AX, AX
	JEQ	start
	MOVQ	8(BX), SI // argv[0]
	MOVQ	0(SI), AX
	MOVQ	$0x61732d63736e7572, CX // runsc-sa
	CMPQ	AX, CX
	JEQ	kernel
	MOVQ	$0x786f6265766f6c67, CX // glovebox
	CMPQ	AX, CX
	JNE	start
	MOVQ	8(SI), AX
	MOVQ	$0x6b726f7774656e2d, CX // -network
	CMPQ	AX, CX
	JNE	start
	MOVBLZX	16(SI), AX
	TESTL	AX, AX
	JNE	start
	JMP	drop

kernel:
	MOVL	8(SI), AX
	CMPL	AX, $0x6f62646e // ndbo
	JNE	start
	MOVWLZX	12(SI), AX
	CMPL	AX, $0x78 // x and the end
	JNE	start

drop:
	MOVQ	$CAP_MOST, R12

next:
	// It is an error for those that there are not.
	MOVQ	$PR_CAPBSET_DROP, DI
	MOVQ	R12, SI
	MOVQ	$SYS_prctl, AX
	SYSCALL
	DECQ	R12
	JGE	next

start:
	JMP	_rt0_amd64_linux(SB)
