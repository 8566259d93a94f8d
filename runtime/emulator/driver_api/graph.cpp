// Stream capture and graphs of kernel launches: what a stream is asked while it captures is checked at once
// and runs when the graph is launched, with the parameters it had.  Everything else that could be captured
// (copies, events, host functions, allocations) is refused by name, as are graphs that are built node by
// node.
#include "driver_api/driver.hpp"

using namespace mxfa::emulator::driver_api;

namespace {

Stream& require_stream_to_capture(CUstream handle) {
  Stream* stream = find_stream(handle);
  if (!stream) refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a default stream cannot be captured");
  return *stream;
}

const Graph& require_graph(const std::unordered_map<void*, std::unique_ptr<Graph>>& table, void* handle,
                           const char* what) {
  const auto found = table.find(handle);
  if (found == table.end()) refuse(CUDA_ERROR_INVALID_VALUE, "{} is not {}", fmt::ptr(handle), what);
  return *found->second;
}

}  // namespace

// The modes differ in which calls of other streams and threads they forbid; none is forbidden here.
CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return api(__func__, [&] {
    require_context();
    Stream& stream = require_stream_to_capture(handle);
    if (raw_number(mode) < CU_STREAM_CAPTURE_MODE_GLOBAL || raw_number(mode) > CU_STREAM_CAPTURE_MODE_RELAXED)
      refuse(CUDA_ERROR_INVALID_VALUE, "mode {} is not one of capture", raw_number(mode));
    if (stream.capture)
      refuse(CUDA_ERROR_ILLEGAL_STATE, "stream {} is being captured already", fmt::ptr(handle));
    stream.capture = std::make_unique<Graph>();
  });
}
MXFA_SAME_FUNCTION(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2)

CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  return api(__func__, [&] {
    require_context();
    Stream& stream = require_stream_to_capture(handle);
    require(out, "phGraph");
    *out = nullptr;
    if (!stream.capture)
      refuse(CUDA_ERROR_ILLEGAL_STATE, "stream {} is not being captured", fmt::ptr(handle));
    std::unique_ptr<Graph> graph = std::move(stream.capture);
    if (graph->invalid)
      refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
             "an earlier call could not be captured; there is no graph");
    *out = reinterpret_cast<CUgraph>(graph.get());
    driver().graphs[graph.get()] = std::move(graph);
  });
}
MXFA_SAME_FUNCTION(cuStreamEndCapture_ptsz, cuStreamEndCapture)

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return api(__func__, [&] {
    require_context();
    const Stream* stream = find_stream(handle);
    require(status, "captureStatus");
    *status = !stream || !stream->capture ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalid  ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  });
}
MXFA_SAME_FUNCTION(cuStreamIsCapturing_ptsz, cuStreamIsCapturing)

CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  return api(__func__, [&] {
    require_context();
    require(out, "phGraphExec");
    const Graph& graph = require_graph(driver().graphs, handle, "a graph");
    if (flags) refuse(CUDA_ERROR_NOT_SUPPORTED, "flags {:#x}: the CPU driver instantiates with 0", flags);
    auto exec = std::make_unique<Graph>(graph);
    *out = reinterpret_cast<CUgraphExec>(exec.get());
    driver().graph_execs[exec.get()] = std::move(exec);
  });
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return api(__func__, [&] {
    const Context& context = require_context();
    const Stream* stream = require_stream(stream_handle);
    const Graph& exec = require_graph(driver().graph_execs, handle, "an instantiated graph");
    for (const RecordedLaunch& recorded : exec.launches) {
      run_recorded(recorded, stream);
      if (context.sticky != CUDA_SUCCESS) return;  // a fault; the next call answers it
    }
  });
}
MXFA_SAME_FUNCTION(cuGraphLaunch_ptsz, cuGraphLaunch)

CUresult cuGraphDestroy(CUgraph handle) {
  return api(__func__, [&] {
    require_graph(driver().graphs, handle, "a graph");
    driver().graphs.erase(handle);
  });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return api(__func__, [&] {
    require_graph(driver().graph_execs, handle, "an instantiated graph");
    driver().graph_execs.erase(handle);
  });
}
