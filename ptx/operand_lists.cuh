// Long operand lists of inline assembly: tcgen05.ld/st and wgmma take up to 96 registers in braces.  Private
// to ptx/.
//   MXFA_REGS_n          the text "%0, %1, ... %(n-1)"
//   MXFA_OPS_n(C, r, i)  the operands C(r[i]), ... C(r[i+n-1]) with constraint C
#pragma once

#define MXFA_REGS_1 "%0"
#define MXFA_REGS_2 MXFA_REGS_1 ", %1"
#define MXFA_REGS_4 MXFA_REGS_2 ", %2, %3"
#define MXFA_REGS_8 MXFA_REGS_4 ", %4, %5, %6, %7"
#define MXFA_REGS_16 MXFA_REGS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define MXFA_REGS_24 MXFA_REGS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define MXFA_REGS_32 MXFA_REGS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define MXFA_REGS_40 MXFA_REGS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define MXFA_REGS_48 MXFA_REGS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define MXFA_REGS_56 MXFA_REGS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define MXFA_REGS_64 MXFA_REGS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define MXFA_REGS_72 MXFA_REGS_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define MXFA_REGS_80 MXFA_REGS_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define MXFA_REGS_88 MXFA_REGS_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define MXFA_REGS_96 MXFA_REGS_88 ", %88, %89, %90, %91, %92, %93, %94, %95"

#define MXFA_OPS_1(C, r, i) C(r[i])
#define MXFA_OPS_2(C, r, i) C(r[i]), C(r[i + 1])
#define MXFA_OPS_4(C, r, i) MXFA_OPS_2(C, r, i), MXFA_OPS_2(C, r, i + 2)
#define MXFA_OPS_8(C, r, i) MXFA_OPS_4(C, r, i), MXFA_OPS_4(C, r, i + 4)
#define MXFA_OPS_16(C, r, i) MXFA_OPS_8(C, r, i), MXFA_OPS_8(C, r, i + 8)
#define MXFA_OPS_24(C, r, i) MXFA_OPS_16(C, r, i), MXFA_OPS_8(C, r, i + 16)
#define MXFA_OPS_32(C, r, i) MXFA_OPS_24(C, r, i), MXFA_OPS_8(C, r, i + 24)
#define MXFA_OPS_40(C, r, i) MXFA_OPS_32(C, r, i), MXFA_OPS_8(C, r, i + 32)
#define MXFA_OPS_48(C, r, i) MXFA_OPS_40(C, r, i), MXFA_OPS_8(C, r, i + 40)
#define MXFA_OPS_56(C, r, i) MXFA_OPS_48(C, r, i), MXFA_OPS_8(C, r, i + 48)
#define MXFA_OPS_64(C, r, i) MXFA_OPS_56(C, r, i), MXFA_OPS_8(C, r, i + 56)
#define MXFA_OPS_72(C, r, i) MXFA_OPS_64(C, r, i), MXFA_OPS_8(C, r, i + 64)
#define MXFA_OPS_80(C, r, i) MXFA_OPS_72(C, r, i), MXFA_OPS_8(C, r, i + 72)
#define MXFA_OPS_88(C, r, i) MXFA_OPS_80(C, r, i), MXFA_OPS_8(C, r, i + 80)
#define MXFA_OPS_96(C, r, i) MXFA_OPS_88(C, r, i), MXFA_OPS_8(C, r, i + 88)
