// The stand-in driver: streams, events, capture. What each call returns during a capture was observed on a real driver.
#include "state.h"

namespace fourfold::cuda::stand_in {
namespace {

/// Ends the sequence: its streams are free again, its graph is returned.
CUgraph finish(State& all, const std::shared_ptr<Capture>& capture) {
  for (CUstream stream : capture->streams) {
    if (!all.streams.contains(stream)) continue;
    stream->capture = nullptr;
    stream->captured_nodes = stream->joined_nodes = 0;
  }
  all.captures.erase(capture);
  return capture->graph;
}

void drop(CUgraph graph) { delete graph; }

/// Whether every stream of the sequence but the origin is waited for by another one.
bool all_joined(const State& all, const Capture& capture) {
  for (CUstream stream : capture.streams)
    if (stream != capture.origin && all.streams.contains(stream) && stream->joined_nodes <= stream->captured_nodes)
      return false;
  return true;
}

bool is_capturing(const State& all, const std::shared_ptr<Capture>& capture) {
  return capture != nullptr && all.captures.contains(capture);
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return logged("cuStreamCreate", text("flags=", flags), [&](State& all) {
    const CUcontext context = this_thread_state().current();
    if (context == nullptr) return kInvalidContext;
    *stream = new CUstream_st{context, nullptr, 0, 0};
    all.streams.insert(*stream);
    return kSuccess;
  });
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return logged("cuStreamDestroy_v2", text("stream=", stream), [&](State& all) {
    if (all.streams.erase(stream) == 0) return kInvalidHandle;
    if (const auto capture = stream->capture; capture != nullptr) {
      capture->invalidated = true;
      if (capture->origin == stream) drop(finish(all, capture));
    }
    delete stream;
    return kSuccess;
  });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return logged("cuStreamSynchronize", text("stream=", stream), [&](State& all) {
    if (stream != nullptr && !all.streams.contains(stream)) return kInvalidHandle;
    if (const CUresult captured = check_not_captured(stream); captured != kSuccess) return captured;
    return check_unsafe(all);
  });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return logged("cuStreamWaitEvent", text("stream=", stream, " event=", event, " flags=", flags), [&](State& all) {
    if (!all.streams.contains(stream) || !all.events.contains(event)) return kInvalidHandle;
    const auto own = stream->capture;
    if (own != nullptr && own->invalidated) return kStreamCaptureInvalidated;
    if (!is_capturing(all, event->capture)) {
      if (own == nullptr || !event->recorded) return kSuccess;
      own->invalidated = true;
      return kStreamCaptureIsolation;
    }
    const auto other = event->capture;
    if (other->invalidated) return kStreamCaptureInvalidated;
    if (own != nullptr && own != other) {
      own->invalidated = other->invalidated = true;
      return kStreamCaptureMerge;
    }
    if (event->stream != stream && all.streams.contains(event->stream))
      event->stream->joined_nodes = std::max(event->stream->joined_nodes, event->captured_nodes + 1);
    stream->capture = other;
    other->streams.insert(stream);
    return kSuccess;
  });
}

CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  return logged("cuStreamIsCapturing", text("stream=", stream), [&](State& all) {
    if (stream != nullptr && !all.streams.contains(stream)) return kInvalidHandle;
    const Capture* capture = stream != nullptr ? stream->capture.get() : nullptr;
    *status = capture == nullptr ? kCaptureNone : capture->invalidated ? kCaptureInvalidated : kCaptureActive;
    return kSuccess;
  });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return logged("cuStreamBeginCapture_v2", text("stream=", stream, " mode=", mode), [&](State& all) {
    if (stream == nullptr) return kStreamCaptureUnsupported;
    if (!all.streams.contains(stream)) return kInvalidHandle;
    if (stream->capture != nullptr) return kIllegalState;
    if (mode < 0 || mode > static_cast<int>(CaptureMode::relaxed)) return kInvalidValue;
    const auto capture = std::make_shared<Capture>();
    capture->mode = static_cast<CaptureMode>(mode);
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    capture->graph = new CUgraph_st;
    capture->streams.insert(stream);
    stream->capture = capture;
    all.captures.insert(capture);
    return kSuccess;
  });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return logged("cuStreamEndCapture", text("stream=", stream), [&](State& all) {
    *graph = nullptr;
    if (!all.streams.contains(stream)) return kInvalidHandle;
    const auto capture = stream->capture;
    if (capture == nullptr) return kIllegalState;
    if (capture->origin != stream) {
      capture->invalidated = true;
      return kStreamCaptureUnmatched;
    }
    CUresult result = kSuccess;
    if (capture->invalidated)
      result = kStreamCaptureInvalidated;
    else if (capture->mode != CaptureMode::relaxed && capture->thread != std::this_thread::get_id())
      result = kStreamCaptureWrongThread;
    else if (!all_joined(all, *capture))
      result = kStreamCaptureUnjoined;
    const CUgraph recorded = finish(all, capture);
    if (result != kSuccess) {
      drop(recorded);
      return result;
    }
    all.graphs.insert(recorded);
    *graph = recorded;
    return kSuccess;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  return logged("cuThreadExchangeStreamCaptureMode", text("mode=", *mode), [&](State&) {
    if (*mode < 0 || *mode > static_cast<int>(CaptureMode::relaxed)) return kInvalidValue;
    std::swap(this_thread_state().capture_mode, *mode);
    return kSuccess;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return logged("cuEventCreate", text("flags=", flags), [&](State& all) {
    const CUcontext context = this_thread_state().current();
    if (context == nullptr) return kInvalidContext;
    *event = new CUevent_st{context, false, nullptr, nullptr, 0, 0};
    all.events.insert(*event);
    return kSuccess;
  });
}

CUresult cuEventDestroy_v2(CUevent event) {
  return logged("cuEventDestroy_v2", text("event=", event), [&](State& all) {
    if (all.events.erase(event) == 0) return kInvalidHandle;
    delete event;
    return kSuccess;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return logged("cuEventRecord", text("event=", event, " stream=", stream), [&](State& all) {
    if (!all.events.contains(event) || !all.streams.contains(stream) || event->context != stream->context)
      return kInvalidHandle;
    if (stream->capture != nullptr && stream->capture->invalidated) return kStreamCaptureInvalidated;
    event->recorded = true;
    event->capture = stream->capture;
    event->stream = stream;
    event->captured_nodes = stream->captured_nodes;
    event->recorded_us = all.now_us;
    return kSuccess;
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return logged("cuEventSynchronize", text("event=", event), [&](State& all) {
    if (!all.events.contains(event)) return kInvalidHandle;
    if (is_capturing(all, event->capture)) {
      event->capture->invalidated = true;
      return kCapturedEvent;
    }
    return check_unsafe(all);
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return logged("cuEventElapsedTime", text("begin=", begin, " end=", end), [&](State& all) {
    if (!all.events.contains(begin) || !all.events.contains(end) || !begin->recorded || !end->recorded)
      return kInvalidHandle;
    if (begin->capture != nullptr || end->capture != nullptr) return kInvalidHandle;
    *milliseconds = static_cast<float>((end->recorded_us - begin->recorded_us) / 1e3);
    return kSuccess;
  });
}
}

}  // namespace fourfold::cuda::stand_in
