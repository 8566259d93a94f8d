#include "host/module.hpp"

#include <chrono>

#include "host/error.hpp"

namespace mxfa {
namespace {

void load_image(const Driver& driver, Kernel& kernel, const std::string& compiler) {
  const Artefact& artefact = *kernel.built.artefact;
  const std::string& image =
      driver.loads_ptx ? artefact.ptx : artefact.cubin;  // PTX text ends in NUL, as c_str() gives it
  const CUresult result = driver.cuModuleLoadDataEx(&kernel.module, image.c_str(), 0, nullptr, nullptr);
  const bool too_new = result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || result == CUDA_ERROR_INVALID_IMAGE ||
                       result == CUDA_ERROR_NO_BINARY_FOR_GPU;
  std::string what = fmt::format("loading {} for {}", kernel.config.kernel, kernel.config.arch);
  if (too_new)
    what += fmt::format(
        " (the driver is for CUDA {}, the kernel was compiled by {}: the driver must be of the same CUDA "
        "major version or newer; update it, or name an older NVRTC in MXFA_NVRTC)",
        driver.version(), compiler);
  driver.check(result, what);
}

void read_tables(const Driver& driver, Kernel& kernel, uint32_t params_bytes) {
  const std::string name = kernel.config.kernel + "_tables";
  CUdeviceptr address = 0;
  size_t bytes = 0;
  driver.check(driver.cuModuleGetGlobal_v2(&address, &bytes, kernel.module, name.c_str()),
               "looking up " + name);
  if (bytes != sizeof(kernel.tables))
    device_error("{} has {} bytes, the host expects {}: kernel source and library are of different versions",
                 name, bytes, sizeof(kernel.tables));
  driver.check(driver.cuMemcpyDtoH_v2(&kernel.tables, address, bytes), "reading " + name);
  const abi::KernelTables& tables = kernel.tables;
  if (tables.magic != abi::kTablesMagic)
    device_error("{} begins with {:#x}, expected {:#x}", name, tables.magic, abi::kTablesMagic);
  if (tables.params_bytes != params_bytes)
    device_error(
        "{}: the kernel takes {} bytes of parameters, the host passes {}: kernel source and library are of "
        "different versions",
        name, tables.params_bytes, params_bytes);
  if (tables.role_count > std::size(tables.roles) || tables.smem_count > std::size(tables.smem) ||
      tables.tmem_count > std::size(tables.tmem) || tables.barrier_count > std::size(tables.barriers) ||
      tables.threads == 0 || tables.threads > 1024 || tables.tile_rows == 0)
    device_error("{}: a count is out of range", name);
}

}  // namespace

std::unique_ptr<Kernel> load_kernel(const Driver& driver, const KernelConfig& config, BuiltKernel built,
                                    uint32_t params_bytes, const std::string& compiler) {
  const auto start = std::chrono::steady_clock::now();
  auto kernel = std::make_unique<Kernel>();
  kernel->config = config;
  kernel->built = std::move(built);
  load_image(driver, *kernel, compiler);
  try {
    driver.check(driver.cuModuleGetFunction(&kernel->function, kernel->module, config.kernel.c_str()),
                 "looking up " + config.kernel);
    read_tables(driver, *kernel, params_bytes);
    const int available = driver.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    const int wanted = int(kernel->tables.shared_bytes);
    if (wanted > available)
      invalid("{} wants {} bytes of shared memory a CTA, {} offers {}; choose fewer stages", config.kernel,
              wanted, driver.device_name, available);
    driver.check(
        driver.cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, wanted),
        fmt::format("asking for {} bytes of shared memory for {}", wanted, config.kernel));
  } catch (...) {
    unload_kernel(driver, *kernel);
    throw;
  }
  kernel->load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kernel;
}

void unload_kernel(const Driver& driver, Kernel& kernel) {
  if (kernel.module) driver.cuModuleUnload(kernel.module);
  kernel.module = nullptr;
}

void launch_kernel(const Driver& driver, const Kernel& kernel, uint32_t grid, const void* params,
                   CUstream stream) {
  CUlaunchConfig launch{};
  launch.gridDimX = grid, launch.gridDimY = 1, launch.gridDimZ = 1;
  launch.blockDimX = kernel.tables.threads, launch.blockDimY = 1, launch.blockDimZ = 1;
  launch.sharedMemBytes = kernel.tables.shared_bytes;
  launch.hStream = stream;
  void* arguments[] = {const_cast<void*>(params)};
  const CUresult result = driver.cuLaunchKernelEx(&launch, kernel.function, arguments, nullptr);
  if (result != CUDA_SUCCESS)
    driver.check(result,
                 fmt::format("launching {} (grid {}, block {}, {} bytes of dynamic shared memory)",
                             kernel.config.kernel, grid, kernel.tables.threads, kernel.tables.shared_bytes));
}

}  // namespace mxfa
