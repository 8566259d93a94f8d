// The synchronisation of a parsed module, and the module without one piece of it: what a test of the hazard
// checks, or of a kernel's barriers, is made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/ast.hpp"

namespace mxfa::emulator::ptx {

struct SyncSite {
  int32_t function = 0, instruction = 0;
  std::string kind;         // "mbarrier.arrive", "tcgen05.wait::ld", "fence.proxy.async"
  bool bytes_only = false;  // of mbarrier.arrive.expect_tx: the bytes go, the arrival stays
};

// In the order of the text.  arrive.expect_tx counts twice: all of it, and the bytes alone.
std::vector<SyncSite> sync_sites(const Module& module);

// A wait becomes one that does not wait, everything else does nothing.
void delete_site(Module& module, const SyncSite& site);

}  // namespace mxfa::emulator::ptx
