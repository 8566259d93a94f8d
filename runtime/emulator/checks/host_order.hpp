// Accesses of a kernel to what a memset or copy of the host may still be writing or reading: one that the
// stream of the kernel does not wait for.
#pragma once

#include <string>
#include <vector>

#include "checks/checks.hpp"

namespace mxfa::emulator {

class HostOrder : public Observer {
 public:
  HostOrder(const UnorderedOperations& operations, Findings& findings)
      : operations_(operations), findings_(findings) {}

  void cluster_begins(Cluster& cluster) override;
  void access(Warp& warp, const LaneAccess& access) override;
  void issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) override;

 private:
  void range(Warp& warp, int lane, AccessKind kind, bool async, uint64_t begin, uint64_t bytes);

  const UnorderedOperations& operations_;
  Findings& findings_;
  const Program* program_ = nullptr;
};

}  // namespace mxfa::emulator
