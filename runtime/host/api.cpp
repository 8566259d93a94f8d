// The entry points of mxfa.h that belong to no single operation: contexts, errors, plans.
#include <new>

#include "host/attention_lengths.hpp"

namespace mxfa {
namespace {

// entry_point() of a context that does not exist yet.
template <class Function>
mxfa_status create_with(mxfa_context& context, Function&& function) noexcept {
  try {
    function();
    return MXFA_OK;
  } catch (const Error& failure) {
    context.error = failure.what();
    return failure.status();
  } catch (const std::exception& failure) {
    context.error = failure.what();
    return MXFA_ERROR_DEVICE;
  }
}

}  // namespace
}  // namespace mxfa

extern "C" {

mxfa_status mxfa_create(const mxfa_context_options* options, mxfa_context** context) {
  if (!context) return MXFA_ERROR_INVALID;
  *context = new (std::nothrow) mxfa_context;
  if (!*context) return MXFA_ERROR_DEVICE;
  return mxfa::create_with(**context, [&] {
    mxfa_context_options known{};
    if (options) known = mxfa::read_struct(options, known, "mxfa_context_options");
    if (known.verbose != 0 && known.verbose != 1)
      mxfa::invalid("mxfa_context_options.verbose is {}; it must be 0 or 1", known.verbose);
    (*context)->verbose = known.verbose != 0;
    (*context)->open(mxfa::load_driver(mxfa::parse_device(known.device)),
                     mxfa::shared_cache(known.cache_dir));
  });
}

void mxfa_destroy(mxfa_context* context) { delete context; }

const char* mxfa_error(const mxfa_context* context) {
  return context ? context->error.c_str() : "context is null";
}

uint64_t mxfa_plan_workspace(const mxfa_plan* plan) { return plan ? plan->workspace.size() : 0; }

mxfa_status mxfa_plan_prepare(mxfa_plan* plan, void* workspace, void* stream) {
  if (!plan) return MXFA_ERROR_INVALID;
  return mxfa::entry_point(plan->context, [&] {
    const std::vector<char>& image = plan->workspace.bytes();
    mxfa::check_aligned(workspace, mxfa::kWorkspaceAlignment, "workspace");
    const auto address = reinterpret_cast<uint64_t>(workspace);
    const mxfa::Driver& driver = plan->context->driver;
    const mxfa::CurrentContext current(*plan->context);
    mxfa::device_work(*plan->context, [&] {
      driver.check(
          driver.cuMemcpyHtoDAsync_v2(address, image.data(), image.size(), static_cast<CUstream>(stream)),
          fmt::format("copying {} bytes of offsets and tiles to the workspace at {:#x}", image.size(),
                      address));
    });
    plan->prepared.insert(address);
  });
}

mxfa_status mxfa_plan_check(mxfa_plan* plan, void* workspace, void* stream) {
  if (!plan) return MXFA_ERROR_INVALID;
  return mxfa::entry_point(
      plan->context, [&] { mxfa::check_device_lengths(*plan, workspace, static_cast<CUstream>(stream)); });
}

const char* mxfa_plan_describe(mxfa_plan* plan) {
  if (!plan) return "";
  // A launch is not needed to describe, but the driver is: not in a forked child.
  const mxfa_status status =
      mxfa::entry_point(plan->context, [&] { plan->description = mxfa::describe_plan(*plan); });
  return status == MXFA_OK ? plan->description.c_str() : "";
}

void mxfa_plan_destroy(mxfa_plan* plan) { delete plan; }

int64_t mxfa_scale_rows(int32_t batch, const int32_t* offsets) {
  try {
    return mxfa::read_sequences("offsets", batch, offsets).scale_rows();
  } catch (const std::exception&) {
    return -1;
  }
}

}  // extern "C"
