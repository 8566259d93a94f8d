// out = 2 * in, 1 KiB at a time: a thread of warp 0 loads tiles into a ring of two stages, warp 1 doubles them
// and stores them.  DEFECT leaves one line wrong (docs/debugging.md finds each):
//   1  the producer expects the bytes of both stages
//   2  the consumer gives a stage back before it has read it
//   3  nothing orders the consumer's writes before the copy that reads them
#ifndef DEFECT
#define DEFECT 0
#endif
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

constexpr int kStages = 2, kTile = 256;
constexpr uint32_t kTileBytes = kTile * sizeof(float);

__device__ uint32_t shared_address(const void* pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }
__device__ void init(uint64_t* bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
__device__ void arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
__device__ void arrive_expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
               : "memory");
}
__device__ void wait(uint64_t* bar, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(bar)),
      "r"(parity)
      : "memory");
}
__device__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ void load(void* tile, const float* from, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(tile)),
      "l"(from), "r"(kTileBytes), "r"(shared_address(bar))
      : "memory");
}
__device__ void store(float* to, const void* tile) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(tile)), "r"(kTileBytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(64) scale_tiles(const float* in, float* out, int tiles) {
  __shared__ alignas(128) float stage[kStages][kTile];
  __shared__ alignas(128) float result[kTile];
  __shared__ uint64_t full[kStages], empty[kStages];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init(&full[s], 1);
      init(&empty[s], 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {  // producer
    for (int t = 0; t < tiles; ++t) {
      const int s = t % kStages, parity = t / kStages % 2;
      wait(&empty[s], parity ^ 1);
      arrive_expect(&full[s], DEFECT == 1 ? kStages * kTileBytes : kTileBytes);
      load(stage[s], in + t * kTile, &full[s]);
    }
  } else if (threadIdx.x >= 32) {  // consumer
    for (int t = 0; t < tiles; ++t) {
      const int s = t % kStages, parity = t / kStages % 2;
      wait(&full[s], parity);
      if (DEFECT == 2) arrive(&empty[s]);
      float value[kTile / 32];
      for (int i = 0; i < kTile / 32; ++i) value[i] = stage[s][32 * i + lane];
      proxy_fence();  // the next load is of the async proxy
      if (DEFECT != 2) arrive(&empty[s]);
      if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // of the tile before
      __syncwarp();
      for (int i = 0; i < kTile / 32; ++i) result[32 * i + lane] = 2 * value[i];
      if (DEFECT != 3) proxy_fence();
      __syncwarp();
      if (lane == 0) store(out + t * kTile, result);
    }
    if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
