// A <<<>>> program, compiled by nvcc as its user would, on libcudart.so.13 and libcuda.so.1 of the CPU
// driver.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/catch.hpp"

namespace {

namespace fs = std::filesystem;

const char kSource[] = R"(
#include <cstdio>
#include <cuda_runtime.h>

__constant__ float scale[2];
__device__ int calls = 0;
__managed__ int seen = 0;

template <class T>
__global__ void axpy(T* y, const T* x, int n) {
  extern __shared__ T staged[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) staged[threadIdx.x] = x[i];
  __syncthreads();
  if (i < n) y[i] += static_cast<T>(scale[1]) * staged[threadIdx.x];
  if (threadIdx.x == 0) {
    atomicAdd(&calls, 1);
    atomicAdd(&seen, 1);
  }
}

int main() {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return 1;
  const int n = 1000;
  float host[n];
  const float factors[2] = {0, 3};
  cudaMemcpyToSymbol(scale, factors, sizeof factors);
  float *x, *y;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, sizeof host);
  for (int i = 0; i < n; ++i) host[i] = i;
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  cudaMemcpy(y, host, sizeof host, cudaMemcpyHostToDevice);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  axpy<float><<<8, 128, 128 * sizeof(float), stream>>>(y, x, n);
  cudaMemcpyAsync(host, y, sizeof host, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  for (int i = 0; i < n; ++i) if (host[i] != 4.0f * i) return 2;
  axpy<float><<<1, 2048>>>(y, x, n);
  const cudaError_t error = cudaGetLastError();
  int counted = 0;
  cudaMemcpyFromSymbol(&counted, calls, sizeof counted);
  std::printf("sm_%d%d calls %d seen %d: %s\n", properties.major, properties.minor, counted, seen,
              cudaGetErrorName(error));
  return cudaDeviceSynchronize() != cudaSuccess;
}
)";

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "mxfa_nvcc_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("a <<<>>> program built with nvcc -cudart shared runs", "[driver][cudart][nvcc]") {
  if (std::system("nvcc --version 2>/dev/null | grep -q 'release 13'") != 0) {
    WARN("not run: there is no nvcc of CUDA 13 on the PATH");
    return;
  }
  const Folder folder;
  std::ofstream(folder.path / "a.cu") << kSource;
  const std::string in = "cd " + folder.path.string() + " && ";
  const int built = std::system(
      (in + "nvcc -cudart shared -gencode arch=compute_90,code=compute_90 a.cu -o a >log 2>&1").c_str());
  INFO(text_of(folder.path / "log"));
  REQUIRE(built == 0);
  const std::string libraries = fs::path(MXFA_CUDART_LIBRARY).parent_path().string();
  for (const char* device : {"h200", "b200"}) {
    const int ran = std::system(
        (in + "LD_LIBRARY_PATH=" + libraries + " MXFA_EMU_DEVICE=" + device + " ./a >out 2>err").c_str());
    INFO(text_of(folder.path / "err"));
    CHECK(ran == 0);
    const std::string architecture = device == std::string("h200") ? "sm_90" : "sm_100";
    CHECK(text_of(folder.path / "out") == architecture + " calls 8 seen 8: cudaErrorInvalidConfiguration\n");
  }
}
