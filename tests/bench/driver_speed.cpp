// How fast the CPU driver runs: warp instructions a second of an ALU and shared-memory mix,
// multiply-accumulates a second of a loop of MXFP8 tensor-core instructions, and the time that loading a
// kernel of 5,000 instructions takes (parsing and lowering).  The kernels are PTX text, so nothing but the
// library is needed.
//
//   mxfa_bench_driver [--library PATH] [--seconds S] [--json FILE|-]
//
// Each kernel, a single cluster, runs until S seconds (default 1) of processor time are used, at least three
// times; the fastest run counts, as other programs only slow it down.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// 24 instructions a turn in the proportions of a softmax loop: loads, FMA, ex2, maxima, integer addresses, a
// store.  Threads write the lower half of the box, each its own place, and read anywhere in the upper one.
const char* const kMix = R"(
.version 8.6
.target sm_90
.address_size 64
.visible .entry mix(.param .u32 turns, .param .u64 out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<12>;
  .reg .f32 %f<16>;
  .reg .b64 %w<3>;
  .shared .align 16 .b8 box[8192];
  ld.param.u32 %r1, [turns];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, box;
  mad.lo.u32 %r4, %r2, 16, %r3;
  cvt.rn.f32.u32 %f1, %r2;
  mul.f32 %f1, %f1, 0f3A83126F;
  mov.f32 %f2, 0f3F800000;
  mov.f32 %f9, 0f00000000;
  st.shared.v4.f32 [%r4], {%f1, %f2, %f1, %f2};
  st.shared.v4.f32 [%r4+4096], {%f1, %f2, %f1, %f2};
  bar.sync 0;
again:
  ld.shared.v4.f32 {%f3, %f4, %f5, %f6}, [%r4];
  fma.rn.ftz.f32 %f3, %f3, %f2, %f1;
  fma.rn.ftz.f32 %f4, %f4, %f2, %f1;
  max.ftz.f32 %f7, %f3, %f4;
  max.ftz.f32 %f7, %f7, %f5;
  sub.ftz.f32 %f3, %f3, %f7;
  sub.ftz.f32 %f4, %f4, %f7;
  ex2.approx.ftz.f32 %f3, %f3;
  ex2.approx.ftz.f32 %f4, %f4;
  add.ftz.f32 %f8, %f3, %f4;
  mul.ftz.f32 %f8, %f8, 0f3F000000;
  fma.rn.ftz.f32 %f9, %f8, %f2, %f9;
  cvt.rn.bf16x2.f32 %r5, %f3, %f4;
  shl.b32 %r6, %r5, 3;
  xor.b32 %r6, %r6, %r5;
  and.b32 %r6, %r6, 4080;
  add.u32 %r7, %r3, %r6;
  ld.shared.f32 %f10, [%r7+4096];
  setp.gt.ftz.f32 %p1, %f10, %f9;
  selp.f32 %f6, %f10, %f6, %p1;
  st.shared.v4.f32 [%r4], {%f3, %f4, %f5, %f6};
  add.u32 %r1, %r1, -1;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra again;
  ld.param.u64 %w1, [out];
  mad.wide.u32 %w2, %r2, 4, %w1;
  st.global.f32 [%w2], %f9;
  ret;
}
)";

// Per turn: four 128x128x32 block-scaled MMAs from shared memory, one commit, one wait.
const char* const kTensor = R"(
.version 8.6
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry tensor(.param .u32 turns, .param .u64 out)
{
  .reg .pred %p<6>;
  .reg .b32 %r<32>;
  .reg .b64 %w<8>;
  .shared .align 8 .b32 slot;
  .shared .align 8 .b64 gate;
  mov.u32 %r1, %tid.x;
  setp.eq.u32 %p1, %r1, 0;
  setp.lt.u32 %p2, %r1, 32;
  mov.u32 %r2, slot;
  mov.u32 %r3, gate;
  mov.u32 %r4, dynamic;
  mov.u32 %r5, %r1;
  mov.u32 %r6, 0x38383838;
fill:
  mad.lo.u32 %r7, %r5, 4, %r4;
  st.shared.u32 [%r7], %r6;
  add.u32 %r5, %r5, 128;
  setp.lt.u32 %p3, %r5, 8192;
  @%p3 bra fill;
  @!%p2 bra allocated;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 256;
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
allocated:
  @%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  ld.shared.u32 %r8, [%r2];
  add.u32 %r9, %r8, 128;
  shl.b32 %r10, %r1, 16;
  and.b32 %r10, %r10, 0x00600000;
  add.u32 %r10, %r10, %r9;
  mov.u32 %r11, 0x7f7f7f7f;
  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r10], {%r11, %r11, %r11, %r11, %r11, %r11, %r11, %r11};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @!%p1 bra finish;
  ld.param.u32 %r12, [turns];
  shr.u32 %r13, %r4, 4;
  cvt.u64.u32 %w1, %r13;
  or.b64 %w1, %w1, 0x4000404000010000;
  add.s64 %w2, %w1, 1024;
  mov.u32 %r14, 0x08A00000;
  add.u32 %r15, %r9, 4;
  mov.u32 %r16, 0;
  setp.ne.u32 %p4, %r1, 0;
again:
  tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r8], %w1, %w2, %r14, [%r9], [%r15], %p4;
  setp.eq.u32 %p4, %r1, 0;
  tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r8], %w1, %w2, %r14, [%r9], [%r15], %p4;
  tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r8], %w1, %w2, %r14, [%r9], [%r15], %p4;
  tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r8], %w1, %w2, %r14, [%r9], [%r15], %p4;
  setp.ne.u32 %p4, %r1, 0;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3];
waiting:
  mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r3], %r16;
  @!%p5 bra waiting;
  xor.b32 %r16, %r16, 1;
  add.u32 %r12, %r12, -1;
  setp.ne.u32 %p3, %r12, 0;
  @%p3 bra again;
finish:
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  shl.b32 %r20, %r1, 16;
  and.b32 %r20, %r20, 0x00600000;
  add.u32 %r20, %r20, %r8;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r21}, [%r20];
  tcgen05.wait::ld.sync.aligned;
  ld.param.u64 %w3, [out];
  mad.wide.u32 %w4, %r1, 4, %w3;
  st.global.u32 [%w4], %r21;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @!%p2 bra done;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 256;
done:
  ret;
}
)";

struct Library {
  explicit Library(const std::string& path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) throw std::runtime_error(dlerror());
    counters = reinterpret_cast<int (*)(uint64_t*)>(dlsym(handle, "mxfaEmulatorCounters"));
    if (!counters) throw std::runtime_error(path + " is not the CPU driver of mxfa");
  }
  template <class Function>
  Function get(const char* name) const {
    auto* function = reinterpret_cast<Function>(dlsym(handle, name));
    if (!function) throw std::runtime_error(std::string(name) + " is missing");
    return function;
  }
  void* handle;
  int (*counters)(uint64_t*) = nullptr;
};

#define CALL(library, symbol, ...)                                                                    \
  do {                                                                                                \
    const CUresult code = (library).get<decltype(&::symbol)>(#symbol)(__VA_ARGS__);                   \
    if (code != CUDA_SUCCESS) throw std::runtime_error(#symbol ": CUresult " + std::to_string(code)); \
  } while (false)

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

struct Speed {
  double warp_instructions = 0, macs = 0;
};  // a second

Speed measure(const Library& library, const char* ptx, const char* name, unsigned threads, unsigned shared,
              uint32_t turns, double seconds) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr out = 0;
  CALL(library, cuModuleLoadData, &module, ptx);
  CALL(library, cuModuleGetFunction, &function, module, name);
  CALL(library, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
       static_cast<int>(shared));
  CALL(library, cuMemAlloc_v2, &out, threads * 4);
  void* parameters[] = {&turns, &out};
  Speed best;
  double used = 0;
  for (int run = 0; run < 3 || used < seconds; ++run) {
    uint64_t before[8], after[8];
    library.counters(before);
    const double start = processor_seconds();
    CALL(library, cuLaunchKernel, function, 1, 1, 1, threads, 1, 1, shared, nullptr, parameters, nullptr);
    CALL(library, cuCtxSynchronize, );
    const double time = processor_seconds() - start;
    library.counters(after);
    used += time;
    best.warp_instructions = std::max(best.warp_instructions, (after[1] - before[1]) / time);
    best.macs = std::max(best.macs, (after[4] - before[4]) / time);
  }
  CALL(library, cuMemFree_v2, out);
  CALL(library, cuModuleUnload, module);
  return best;
}

// The mix with its loop written out 208 times, each a loop of its own: 5,000 instructions.
std::string unrolled_mix() {
  const std::string mix = kMix, label = "again";
  const size_t begin = mix.find(label + ":"), jump = mix.find("@%p2 bra", begin),
               end = mix.find(';', jump) + 1;
  std::string text = mix.substr(0, begin);
  for (int turn = 0; turn < 208; ++turn) {
    const std::string own = label + std::to_string(turn);
    text += own + mix.substr(begin + label.size(), jump - begin - label.size()) + "@%p2 bra " + own + ";";
  }
  return text + mix.substr(end);
}

double seconds_to_load(const Library& library, const std::string& ptx, double seconds) {
  double best = 1e9, used = 0;
  for (int run = 0; run < 3 || used < seconds; ++run) {
    CUmodule module = nullptr;
    const double start = processor_seconds();
    CALL(library, cuModuleLoadData, &module, ptx.c_str());
    const double time = processor_seconds() - start;
    CALL(library, cuModuleUnload, module);
    best = std::min(best, time);
    used += time;
  }
  return best;
}

int run(int argc, char** argv) {
  std::string path = MXFA_EMULATOR_LIBRARY, json;
  double seconds = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (i + 1 < argc && option == "--library") {
      path = argv[++i];
    } else if (i + 1 < argc && option == "--seconds") {
      seconds = std::atof(argv[++i]);
    } else if (i + 1 < argc && option == "--json") {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: mxfa_bench_driver [--library PATH] [--seconds S] [--json FILE|-]\n");
      return 2;
    }
  }
  setenv("MXFA_EMU_DEVICE", "b200", 0);
  const Library library(path);
  CUcontext context = nullptr;
  CALL(library, cuInit, 0);
  CALL(library, cuDevicePrimaryCtxRetain, &context, 0);
  CALL(library, cuCtxSetCurrent, context);
  const Speed mix = measure(library, kMix, "mix", 256, 0, 4000, seconds);
  const Speed tensor = measure(library, kTensor, "tensor", 128, 32768, 50, seconds);

  const double load = seconds_to_load(library, unrolled_mix(), seconds / 4);

  const nlohmann::json rows = {
      {{"kernel", "ALU and shared-memory mix"},
       {"unit", "warp instructions/s"},
       {"value", mix.warp_instructions}},
      {{"kernel", "MXFP8 tcgen05.mma 128x128x32"}, {"unit", "MAC/s"}, {"value", tensor.macs}},
      {{"kernel", "loading 5,000 instructions"}, {"unit", "s"}, {"value", load}}};
  if (json != "-") {
    std::printf("%-32s %10.1f M warp instructions/s\n", "ALU and shared-memory mix",
                mix.warp_instructions * 1e-6);
    std::printf("%-32s %10.1f GMAC/s\n", "MXFP8 tcgen05.mma 128x128x32", tensor.macs * 1e-9);
    std::printf("%-32s %10.1f ms\n", "loading 5,000 instructions", load * 1e3);
  }
  if (json == "-") {
    std::cout << rows.dump(2) << '\n';
  } else if (!json.empty()) {
    std::ofstream(json) << rows.dump(2) << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mxfa_bench_driver: %s\n", error.what());
    return 3;
  }
}
