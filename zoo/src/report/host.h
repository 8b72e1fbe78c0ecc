#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ampkit::zoo {

/// The text of a file, empty if it cannot be read. For /proc and /sys, where a
/// missing file means a fact that this system does not tell.
std::string read_host_file(const std::string& path);

/// Cores that the `cpu.max` of a control group allows, e.g. 1.5 for
/// "150000 100000"; none for "max ..." or text that is not such a file.
std::optional<double> cpu_quota(std::string_view cpu_max);

/// Bytes that the `memory.max` of a control group allows; none for "max" or
/// text that is not such a file.
std::optional<int64_t> memory_limit(std::string_view memory_max);

/// Bytes of the entry `key` of /proc/meminfo's text; 0 if it is not there.
int64_t meminfo_bytes(std::string_view meminfo, std::string_view key);

/// The processor's name in /proc/cpuinfo's text; empty where it has none, as on
/// most Arm systems.
std::string processor_name(std::string_view cpuinfo);

/// Kernel name, release and architecture, as `uname -srm` prints them.
std::string system_name();

} // namespace ampkit::zoo
