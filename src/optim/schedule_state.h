#pragma once

#include <string>
#include <vector>

#include <ampkit/io/state_dict.h>

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ampkit::optim {

/// The rates of all groups.
std::vector<double> current_lrs(const torch::optim::Optimizer& optimizer);
void set_lrs(
    torch::optim::Optimizer& optimizer, const std::vector<double>& rates);

/// Entries "<name>.0", "<name>.1", ...
void set_reals(
    io::StateDict& state,
    const std::string& name,
    const std::vector<double>& values);
std::vector<double> reals(
    const io::StateDict& state, const std::string& name, size_t count);

/// Kind, settings and number of groups, as every schedule's state begins.
io::StateDict schedule_header(
    const char* kind, const io::StateDict& settings, size_t groups);

/// Throws c10::Error unless `state` begins with that header.
void check_schedule_header(
    const io::StateDict& state,
    const char* kind,
    const io::StateDict& settings,
    size_t groups);

/// Throws c10::Error unless the optimizer still has `groups` groups.
void check_groups(
    const char* kind, const torch::optim::Optimizer& optimizer, size_t groups);

} // namespace ampkit::optim
