#pragma once

#include <string>
#include <vector>

namespace ampkit::dist {

/// The first host of a SLURM node list: "node[07-09,12],gpu1" -> "node07".
/// Empty if `list` is no such list.
std::string first_slurm_host(const std::string& list);

/// Tasks of each node: "2(x3),1" -> {2, 2, 2, 1}. Empty if `counts` is no such
/// list.
std::vector<int> slurm_tasks_per_node(const std::string& counts);

} // namespace ampkit::dist
