// What tma.cpp and bulk.cpp share: completion of copies, and who issued them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engines/engines.hpp"

namespace mxfa::emulator {

// "cta 0 warp 3 lane 0 pc 812".
std::string issuer(const Warp& warp, int lane);

// Shared addresses (with rank) that a load with this destination writes: its own CTA or every CTA of the
// multicast mask.
std::vector<uint32_t> destinations(Warp& warp, uint32_t shared, const std::optional<uint16_t>& multicast);

// A load into one CTA: poisons `destination` at issue unless the schedule is functional; `data` and the
// complete_tx happen when the event fires.
void submit_load(Warp& warp, const std::string& what, uint32_t destination, uint32_t bytes, uint32_t mbarrier,
                 std::function<void()> data);

// A store joins the lane's open bulk group.  `read` copies the source into the buffer, `write` carries the
// buffer to its destination; both are separate events, because wait_group.read promises only the first.
using Buffer = std::vector<uint8_t>;
void submit_store(Warp& warp, int lane, const std::string& what, std::function<void(Buffer&)> read,
                  std::function<void(const Buffer&)> write);

}  // namespace mxfa::emulator
