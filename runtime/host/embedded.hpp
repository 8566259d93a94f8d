// Text files that travel inside the library (runtime/embed.cmake writes the tables): names are relative to
// the project's root.
#pragma once

struct MxfaEmbedded {
  const char* path;
  const char* text;
};

extern const MxfaEmbedded
    mxfa_embedded_device_sources[];  // ptx/*.cuh, src/*.cuh; ended by {nullptr, nullptr}
extern const MxfaEmbedded mxfa_embedded_kernel_configs[];  // configs/kernels/*.json
