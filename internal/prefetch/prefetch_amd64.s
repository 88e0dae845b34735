#include "textflag.h"

// func Lines(first uintptr)
TEXT ·Lines(SB), NOSPLIT, $0-8
	MOVQ first+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET
