// One function per family of instruction forms: it checks the operands and emits micro-operations.  Named by
// opcodes.def.
#pragma once

#include "ptx/form.hpp"

namespace mxfa::emulator::ptx {

void lower_activemask(Lowering& l, const Match& m);
void lower_approximate(Lowering& l, const Match& m);
void lower_atom(Lowering& l, const Match& m);
void lower_barrier(Lowering& l, const Match& m);
void lower_barrier_red(Lowering& l, const Match& m);
void lower_bra(Lowering& l, const Match& m);
void lower_brx(Lowering& l, const Match& m);
void lower_bulk_commit(Lowering& l, const Match& m);
void lower_bulk_dsmem(Lowering& l, const Match& m);
void lower_bulk_load(Lowering& l, const Match& m);
void lower_bulk_store(Lowering& l, const Match& m);
void lower_bulk_wait(Lowering& l, const Match& m);
void lower_call(Lowering& l, const Match& m);
void lower_carry(Lowering& l, const Match& m);
void lower_cluster_barrier(Lowering& l, const Match& m);
void lower_cp_async(Lowering& l, const Match& m);
void lower_cp_async_arrive(Lowering& l, const Match& m);
void lower_createpolicy(Lowering& l, const Match& m);
void lower_cvt(Lowering& l, const Match& m);
void lower_cvt_pack(Lowering& l, const Match& m);
void lower_cvt_stochastic(Lowering& l, const Match& m);
void lower_cvta(Lowering& l, const Match& m);
void lower_divide(Lowering& l, const Match& m);
void lower_dot_product(Lowering& l, const Match& m);
void lower_elect(Lowering& l, const Match& m);
void lower_exit(Lowering& l, const Match& m);
void lower_fence(Lowering& l, const Match& m);
void lower_float(Lowering& l, const Match& m);
void lower_getctarank(Lowering& l, const Match& m);
void lower_half(Lowering& l, const Match& m);
void lower_integer(Lowering& l, const Match& m);
void lower_isspacep(Lowering& l, const Match& m);
void lower_ld(Lowering& l, const Match& m);
void lower_ldmatrix(Lowering& l, const Match& m);
void lower_logic(Lowering& l, const Match& m);
void lower_lop3(Lowering& l, const Match& m);
void lower_mapa(Lowering& l, const Match& m);
void lower_match(Lowering& l, const Match& m);
void lower_mbarrier_arrive(Lowering& l, const Match& m);
void lower_mbarrier_init(Lowering& l, const Match& m);
void lower_mbarrier_inval(Lowering& l, const Match& m);
void lower_mbarrier_pending_count(Lowering& l, const Match& m);
void lower_mbarrier_tx(Lowering& l, const Match& m);
void lower_mbarrier_wait(Lowering& l, const Match& m);
void lower_min_max(Lowering& l, const Match& m);
void lower_mixed(Lowering& l, const Match& m);
void lower_mov(Lowering& l, const Match& m);
void lower_movmatrix(Lowering& l, const Match& m);
void lower_nanosleep(Lowering& l, const Match& m);
void lower_nothing(Lowering& l, const Match& m);
void lower_cp_async_order(Lowering& l, const Match& m);
void lower_prmt(Lowering& l, const Match& m);
void lower_query_cancel(Lowering& l, const Match& m);
void lower_red(Lowering& l, const Match& m);
void lower_red_async(Lowering& l, const Match& m);
void lower_redux(Lowering& l, const Match& m);
void lower_refused(Lowering& l, const Match& m);
void lower_ret(Lowering& l, const Match& m);
void lower_root(Lowering& l, const Match& m);
void lower_selp(Lowering& l, const Match& m);
void lower_set(Lowering& l, const Match& m);
void lower_setmaxnreg(Lowering& l, const Match& m);
void lower_setp(Lowering& l, const Match& m);
void lower_shfl(Lowering& l, const Match& m);
void lower_sign(Lowering& l, const Match& m);
void lower_slct(Lowering& l, const Match& m);
void lower_st(Lowering& l, const Match& m);
void lower_st_async(Lowering& l, const Match& m);
void lower_st_bulk(Lowering& l, const Match& m);
void lower_stmatrix(Lowering& l, const Match& m);
void lower_tcgen05_alloc(Lowering& l, const Match& m);
void lower_tcgen05_commit(Lowering& l, const Match& m);
void lower_tcgen05_cp(Lowering& l, const Match& m);
void lower_tcgen05_dealloc(Lowering& l, const Match& m);
void lower_tcgen05_fence(Lowering& l, const Match& m);
void lower_tcgen05_ld(Lowering& l, const Match& m);
void lower_tcgen05_ld_red(Lowering& l, const Match& m);
void lower_tcgen05_mma(Lowering& l, const Match& m);
void lower_tcgen05_relinquish(Lowering& l, const Match& m);
void lower_tcgen05_st(Lowering& l, const Match& m);
void lower_tcgen05_wait(Lowering& l, const Match& m);
void lower_tensor_load(Lowering& l, const Match& m);
void lower_tensor_prefetch(Lowering& l, const Match& m);
void lower_tensor_store(Lowering& l, const Match& m);
void lower_tensormap_copy(Lowering& l, const Match& m);
void lower_tensormap_replace(Lowering& l, const Match& m);
void lower_testp(Lowering& l, const Match& m);
void lower_trap(Lowering& l, const Match& m);
void lower_vote(Lowering& l, const Match& m);
void lower_try_cancel(Lowering& l, const Match& m);
void lower_warp_mma(Lowering& l, const Match& m);
void lower_warp_sync(Lowering& l, const Match& m);
void lower_wgmma(Lowering& l, const Match& m);
void lower_wgmma_order(Lowering& l, const Match& m);

}  // namespace mxfa::emulator::ptx
