#pragma once

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/precision.h>
#include <ampkit/zoo/data/image_loader.h>
#include <ampkit/zoo/models/model.h>
#include <c10/core/Device.h>

#include "train/ranks.h"

namespace ampkit::zoo {

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
  int64_t samples = 0;
};

/// Mean cross-entropy and accuracy over one pass of the loaders of all ranks,
/// with the batch norms in evaluation mode and rank 0's running statistics; the
/// network is in training mode afterwards. Waits for the device once, at the
/// end. All ranks.
Evaluation evaluate(
    const Model& model,
    ImageLoader& loader,
    c10::Device device,
    const Precision& precision,
    const AutocastOptions& region,
    const Ranks& ranks);

} // namespace ampkit::zoo
