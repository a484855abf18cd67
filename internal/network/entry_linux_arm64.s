#include "textflag.h"

#define SYS_prctl 167
#define PR_CAPBSET_DROP 24
#define CAP_MOST 63

// func entry()
TEXT ·entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	MOVD	RSP, R19
	MOVD	0(R19), R0 // argc
	CBZ	R0, start
	MOVD	8(R19), R20 // argv[0]
	MOVD	0(R20), R0
	MOVD	$0x61732d63736e7572, R1 // runsc-sa
	CMP	R0, R1
	BEQ	kernel
	MOVD	$0x786f6265766f6c67, R1 // glovebox
	CMP	R0, R1
	BNE	start
	MOVD	8(R20), R0
	MOVD	$0x6b726f7774656e2d, R1 // -network
	CMP	R0, R1
	BNE	start
	MOVBU	16(R20), R0
	CBNZ	R0, start
	B	drop

kernel:
	MOVWU	8(R20), R0
	MOVD	$0x6f62646e, R1 // ndbo
	CMP	R0, R1
	BNE	start
	MOVHU	12(R20), R0
	CMP	$0x78, R0 // x and the end
	BNE	start

drop:
	MOVD	$CAP_MOST, R21

next:
	// It is an error for those that there are not.
	MOVD	$PR_CAPBSET_DROP, R0
	MOVD	R21, R1
	MOVD	$SYS_prctl, R8
	SVC
	SUBS	$1, R21
	BGE	next

start:
	B	_rt0_arm64_linux(SB)
