// How lowering finds the code of a micro-operation.  Selectors return null for a combination that PTX does
// not have.
#pragma once

#include <string>
#include <string_view>

#include "core/kernel.hpp"
#include "ptx/types.hpp"

namespace mxfa::emulator::handlers {

using ptx::Space;
using ptx::Type;

// ---- exec_control.cpp: dst/src as noted
Handler join();
Handler leave(bool entry);  // ret; of an entry: exit
Handler exit_lanes();
Handler branch(bool conditional, bool uniform);  // src0 predicate, imm target, aux join
Handler branch_table();                          // src0 index, list of targets, aux join
Handler call();                                  // imm target, aux Program::calls
Handler call_indirect();                         // src0 address, aux Program::calls
Handler trap();
Handler nop();
Handler nanosleep();
Handler refuse();        // aux: Program::texts
Handler vprintf_call();  // aux Program::calls
Handler assert_fail_call();

// ---- exec_move.cpp
Handler broadcast(bool wide);     // imm
Handler read_special(bool wide);  // aux: ptx::SpecialRegister
Handler read_special_predicate();
Handler shared_address(bool wide, bool generic, bool dynamic);  // imm: offset
Handler move(uint32_t bits);
Handler move_predicate();
Handler pack(uint32_t part_bits, uint32_t count);           // list of parts, low first -> dst
Handler unpack(uint32_t part_bits, uint32_t count);         // src0 -> list
Handler select(uint32_t bits);                              // src0, src1, src2 predicate
Handler select_by_sign(uint32_t bits, bool compare_float);  // slct
Handler prmt(bool mode);                                    // aux: 0 f4e, 1 b4e, 2 rc8, 3 ecl, 4 ecr, 5 rc16
Handler cvta(Space space, bool to);                         // imm: window
Handler isspacep();                                         // aux: isspacep_kind
uint32_t isspacep_kind(std::string_view space);

// ---- exec_integer.cpp
Handler integer(std::string_view op, Type type);  // "add", "mul.hi", "mad.wide", "bfe", ...
Handler carry(std::string_view op,
              Type type);  // imm 0 add 1 sub 2 mad.lo 3 mad.hi; aux 1 carry in (src3), 2 carry out (dst2)
Handler logic_predicate(std::string_view op);
Handler lop3();            // aux: table
Handler lop3_predicate();  // aux: table, dst2 predicate, src3 predicate, imm: 0 or, 1 and
Handler dot_product(bool two_way, bool a_signed, bool b_signed, bool high);

// ---- exec_compare.cpp: dst predicate, dst2 its complement (or kNoRow), src2 the predicate to combine with
Handler compare(std::string_view op, Type type, bool ftz);  // aux: combine_kind
uint32_t combine_kind(std::string_view op);
Handler set_from_predicate(bool as_float);  // src0 predicate -> dst
Handler test_property(Type type);           // aux: property_kind
uint32_t property_kind(std::string_view property);

// ---- exec_float.cpp
Handler floating(std::string_view op,
                 Type type);  // add sub mul div fma sqrt rcp abs neg copysign; mode in MicroOp::mode
Handler mixed(std::string_view op, Type narrow);  // add.f32.bf16 and the like
Handler min_max(bool maximum, bool nan, bool absolute, bool xorsign, bool three, bool ftz,
                Type type);                    // aux: 1 ftz, 2 xorsign
Handler half(std::string_view op, Type type);  // f16, bf16 and their pairs; kSaturate; aux: 1 ftz, 2 relu

// ---- exec_approximate.cpp
Handler approximate(std::string_view op, Type type, bool ftz);

// ---- exec_convert.cpp
struct Conversion {
  Type to = Type::None, from = Type::None;
  std::string_view rounding;
  bool ftz = false, saturate = false, relu = false, satfinite = false;
};
std::string check_conversion(const Conversion& c);  // what is wrong with the combination, empty if nothing
Handler convert(const Conversion& c);
void fill_conversion(const Conversion& c, MicroOp& op);  // the parameters that the handler reads
void widen_conversion(const Conversion& c, MicroOp& op, uint32_t source_bits,
                      uint32_t destination_bits);  // of the registers

// ---- exec_convert_pack.cpp
Handler convert_pack_integers();
Handler convert_stochastic();

// ---- exec_memory.cpp: src0 address, list of values
Handler load(Space space, uint32_t bytes, bool sign_extend,
             bool wide_destination);  // aux: bits to keep of a 32-bit row
Handler store(Space space, uint32_t bytes, bool wide_source);
Handler cp_async();
Handler cp_async_order();  // aux: 0 commit_group, 1 wait_group imm, 2 wait_all
Handler async_store();
Handler store_bulk();

// ---- exec_atomic.cpp, exec_matrix.cpp
Handler atomic(
    Space space, std::string_view op, Type type,
    bool returns);  // list: values, second values, results; aux: vector size; mode: Program::combines
void* atomic_combine(std::string_view op, Type type);
Handler async_reduce(std::string_view op, Type type);
Handler ldmatrix(uint32_t shape);  // 0 m8n8.b16, 1 m16n16.b8; aux: matrices, kOption: .trans
Handler stmatrix(uint32_t shape);  // 0 m8n8.b16, 1 m16n8.b8
Handler movmatrix();

// ---- exec_warp.cpp
Handler shuffle(std::string_view mode);
Handler vote(std::string_view mode);
Handler match(bool all, bool wide);
Handler active_mask();
Handler reduce(std::string_view op, Type type, bool absolute, bool nan);
Handler elect();
Handler warp_sync();

// ---- exec_sync.cpp
enum class BarrierOp { Sync, Arrive, RedPopc, RedAnd, RedOr };
Handler barrier(BarrierOp op);
Handler cluster_arrive();
Handler cluster_wait();
Handler fence();  // aux: FenceKind, mode: spaces of a proxy fence (1 shared, 2 global)
Handler set_max_registers(bool increase);
Handler map_shared(bool wide);  // mapa
Handler cta_rank(bool wide);    // getctarank

// ---- exec_async.cpp: mbarrier and bulk copies
Handler mbarrier_init();
Handler mbarrier_inval();
Handler mbarrier_arrive();
Handler mbarrier_expect_tx();
Handler mbarrier_complete_tx();
Handler mbarrier_wait(bool parity, bool suspending);
Handler mbarrier_pending_count();
Handler cp_async_mbarrier_arrive();
Handler tensor_copy(std::string_view kind);  // "load", "store", "prefetch"
Handler bulk_copy(std::string_view kind);    // "load", "store", "dsmem", "prefetch"
Handler bulk_commit();
Handler bulk_wait();
Handler tensormap_replace(Space space);
Handler tensormap_copy();

// ---- exec_tensor.cpp: tcgen05
Handler tcgen05_alloc();
Handler tcgen05_dealloc();
Handler tcgen05_relinquish();
Handler tcgen05_load();
Handler tcgen05_store();
Handler tcgen05_wait(bool load);
Handler tcgen05_load_use();  // before the use of a register that a load without wait::ld may still write
Handler tcgen05_fence();
Handler tcgen05_copy();
Handler tcgen05_mma();
Handler tcgen05_commit();

// ---- exec_launch_control.cpp: clusterlaunchcontrol
Handler launch_try_cancel();
Handler launch_is_canceled();
Handler launch_first_cta();

// ---- exec_mma.cpp: mma.sync and wgmma
Handler warp_mma();
Handler wgmma_multiply();
Handler wgmma_fence();
Handler wgmma_commit();
Handler wgmma_wait();

}  // namespace mxfa::emulator::handlers
