#pragma once

namespace ampkit::dist {

/// Makes writing to a connection that the other side has closed an error
/// instead of the end of the process, as Python does for every program: Gloo
/// and the store rely on it. A program that has its own handler keeps it.
void survive_broken_pipes();

} // namespace ampkit::dist
