// cuTensorMapEncodeTiled and cuTensorMapReplaceAddress; the rules and the 128 bytes are
// memory/tensor_map.hpp's.
#include "memory/tensor_map.hpp"

#include <cstring>

#include "driver_api/driver.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::driver_api;

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  return api(__func__, [&] {
    require_initialized();
    require(out, "tensorMap");
    TiledTensor tensor;
    tensor.type = raw_number(type);
    tensor.rank = rank;
    tensor.address = reinterpret_cast<uint64_t>(address);
    tensor.dims = reinterpret_cast<const uint64_t*>(dims);
    tensor.strides = reinterpret_cast<const uint64_t*>(strides);
    tensor.box = box;
    tensor.element_strides = element_strides;
    tensor.interleave = raw_number(interleave);
    tensor.swizzle = raw_number(swizzle);
    tensor.l2_promotion = raw_number(promotion);
    tensor.oob_fill = raw_number(fill);
    TensorMap map;
    std::string error;
    if (const int code = encode_tiled(tensor, &map, &error)) refuse(static_cast<CUresult>(code), "{}", error);
    std::memcpy(out, &map, sizeof map);
  });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* out, void* address) {
  return api(__func__, [&] {
    require_initialized();
    require(out, "tensorMap");
    TensorMap map;
    std::memcpy(static_cast<void*>(&map), out, sizeof map);
    std::string error;
    if (const int code = replace_address(&map, reinterpret_cast<uint64_t>(address), &error)) {
      refuse(static_cast<CUresult>(code), "{}", error);
    }
    std::memcpy(out, &map, sizeof map);
  });
}
