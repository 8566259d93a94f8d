#include "bench_yardstick.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "host/error.hpp"
#include "host/paths.hpp"

namespace mxfa::tools {

namespace {

// The five functions of cuBLAS that are used, with the types and the numbers of cublas_api.h and
// library_types.h, whose binary interface is the same in versions 12 and 13; the headers are not needed to
// build.
struct Cublas {
  using Handle = void*;
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, CUstream) = nullptr;
  int (*get_version)(Handle, int*) = nullptr;
  int (*gemm_ex)(Handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha, const void* a,
                 int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c,
                 int c_type, int ldc, int compute_type, int algorithm) = nullptr;
  std::string library;
};
constexpr int kCublasOpN = 0, kCudaR16bf = 14, kCublasCompute32f = 68, kCublasGemmDefault = -1;

std::vector<std::string> candidates() {
  std::vector<std::string> names = {"libcublas.so.13", "libcublas.so.12"};
  std::vector<std::string> homes;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable); home && *home) homes.push_back(home);
  homes.push_back("/usr/local/cuda");
  for (const std::string& home : homes)
    for (const char* file : {"/lib64/libcublas.so.13", "/lib64/libcublas.so.12"})
      names.push_back(home + file);
  return names;
}

// False: *why says what was tried.
bool load(Cublas& cublas, std::string* why) {
  void* handle = open_first(candidates(), &cublas.library, why);
  if (!handle) return false;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function) *why = fmt::format("{} lacks {}", cublas.library, name);
    return function != nullptr;
  };
  return find(cublas.create, "cublasCreate_v2") && find(cublas.destroy, "cublasDestroy_v2") &&
         find(cublas.set_stream, "cublasSetStream_v2") && find(cublas.get_version, "cublasGetVersion_v2") &&
         find(cublas.gemm_ex, "cublasGemmEx");
}

struct Gemm {
  static constexpr int kN = 8192;

  Cublas cublas;
  Cublas::Handle handle = nullptr;
  std::unique_ptr<DeviceBuffer> a, b, c;
  float alpha = 1, beta = 0;

  ~Gemm() {
    if (handle) (void)cublas.destroy(handle);
  }
  int launch() const {
    return cublas.gemm_ex(handle, kCublasOpN, kCublasOpN, kN, kN, kN, &alpha, a->data(), kCudaR16bf, kN,
                          b->data(), kCudaR16bf, kN, &beta, c->data(), kCudaR16bf, kN, kCublasCompute32f,
                          kCublasGemmDefault);
  }
};

}  // namespace

Yardstick make_gemm_yardstick(const Session& session, const Stream& stream, const RandomBlock& block) {
  Yardstick yardstick;
  yardstick.name = "cuBLAS BF16 8192^3";
  yardstick.work = 2.0 * Gemm::kN * Gemm::kN * Gemm::kN;
  const auto gemm = std::make_shared<Gemm>();
  std::string why;
  if (!load(gemm->cublas, &why)) {
    yardstick.missing = fmt::format(
        "cuBLAS was not found ({}); put the folder of libcublas.so.13 or libcublas.so.12 into "
        "LD_LIBRARY_PATH",
        why);
    return yardstick;
  }
  yardstick.library = gemm->cublas.library;
  const auto missing = [&](const char* call, int status) {
    yardstick.missing = fmt::format("{}: {} returned status {}", gemm->cublas.library, call, status);
    return yardstick;
  };
  if (const int status = gemm->cublas.create(&gemm->handle); status != 0)
    return missing("cublasCreate", status);
  if (const int status = gemm->cublas.set_stream(gemm->handle, stream.get()); status != 0)
    return missing("cublasSetStream", status);
  int version = 0;
  (void)gemm->cublas.get_version(gemm->handle, &version);
  yardstick.version = std::to_string(version);
  constexpr uint64_t kElements = uint64_t{Gemm::kN} * Gemm::kN;
  int operand = 0;
  for (std::unique_ptr<DeviceBuffer>* matrix : {&gemm->a, &gemm->b, &gemm->c}) {
    *matrix = std::make_unique<DeviceBuffer>(session, "a matrix of the yardstick", kElements * 2);
    block.fill(**matrix, kElements, operand++);
  }
  if (const int status = gemm->launch(); status != 0) return missing("cublasGemmEx", status);
  stream.synchronize();
  yardstick.launch = [gemm] {
    if (const int status = gemm->launch(); status != 0)
      device_error("cublasGemmEx returned status {}", status);
  };
  return yardstick;
}

Yardstick make_copy_yardstick(const Session& session, const Stream& stream) {
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  Yardstick yardstick;
  yardstick.name = "copy of 1 GiB";
  yardstick.work = 2.0 * kBytes;
  yardstick.library = session.driver().library;
  yardstick.version = session.driver().version();
  const auto from = std::make_shared<DeviceBuffer>(session, "the copy's source", kBytes);
  const auto to = std::make_shared<DeviceBuffer>(session, "the copy's destination", kBytes);
  const CopyOnDevice copy = load_copy_on_device(session.driver());
  yardstick.launch = [&session, &stream, from, to, copy] {
    session.driver().check(copy(reinterpret_cast<CUdeviceptr>(to->data()),
                                reinterpret_cast<CUdeviceptr>(from->data()), kBytes, stream.get()),
                           "cuMemcpyDtoDAsync");
  };
  return yardstick;
}

}  // namespace mxfa::tools
