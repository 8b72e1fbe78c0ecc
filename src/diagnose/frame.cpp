#include "diagnose/frame.h"

namespace ampkit::diagnose {
namespace {

Frame*& innermost_frame() {
  thread_local Frame* frame = nullptr;
  return frame;
}

} // namespace

Frame* Frame::innermost() {
  return innermost_frame();
}

void Frame::push() {
  parent = innermost_frame();
  innermost_frame() = this;
  pushed_ = true;
}

Frame::~Frame() {
  // An async op may end on another thread than it began.
  if (pushed_ && innermost_frame() == this) {
    innermost_frame() = parent;
  }
}

} // namespace ampkit::diagnose
