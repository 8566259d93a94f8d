// Bulk copies of contiguous bytes, and the groups that track everything written back to global memory.
// PTX ISA 9.7.9.25 (cp.async.bulk, cp.reduce.async.bulk, commit_group, wait_group); PTX 8.0, sm_90.
// Callers: one thread; groups belong to the thread that issued.  Addresses and sizes are multiples of 16
// bytes.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// cp.async.bulk global -> shared of this CTA; completes `bytes` on the mbarrier.
MXFA_DEVICE void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(dst), "l"(src), "r"(bytes), "r"(bar)
               : "memory");
}

// cp.reduce.async.bulk.add.f32 shared -> global; each element one relaxed atomic, round to nearest,
// subnormals flushed.  The source must have been made visible with fence_proxy_async_shared_cta by its
// writers.
MXFA_DEVICE void bulk_reduce_add_f32(void* dst, uint32_t src, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :
               : "l"(dst), "r"(src), "r"(bytes)
               : "memory");
}

// cp.reduce.async.bulk.add.noftz.f16 shared -> global; the same for halves, subnormals kept.
MXFA_DEVICE void bulk_reduce_add_f16(void* dst, uint32_t src, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;"
               :
               : "l"(dst), "r"(src), "r"(bytes)
               : "memory");
}

// cp.async.bulk.commit_group -- closes the group of every store and reduction this thread has issued since
// the last one.
MXFA_DEVICE void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// cp.async.bulk.wait_group N -- at most the N youngest groups are still pending; the others' writes are done.
template <int kPending>
MXFA_DEVICE void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" : : "n"(kPending) : "memory");
}

// cp.async.bulk.wait_group.read N -- the same for reading: shared memory may be overwritten, but nothing is
// known about the result in global memory.
template <int kPending>
MXFA_DEVICE void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(kPending) : "memory");
}

}  // namespace mxfa::ptx
