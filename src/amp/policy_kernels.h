#pragma once

#include <c10/core/DeviceType.h>

#include "amp/op_table.h"

namespace ampkit {

/// Puts a kernel that asks the thread's policy in the place of `op`'s autocast
/// kernels on CPU and CUDA, or gives it one; outside ampkit guards it does what
/// LibTorch does. Once an op; thread-safe, but no other thread may be running
/// the op at that moment.
void install_policy_kernel(OpEntry& op);

/// The same for every op that an OpPolicy has named or stock lists have.
void install_policy_kernels();

/// The same for the ops through which modules use parameters.
void install_parameter_kernels();

} // namespace ampkit
