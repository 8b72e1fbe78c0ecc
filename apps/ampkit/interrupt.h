#pragma once

namespace ampkit::app {

/// From now on the first SIGINT or SIGTERM only makes interrupted() true, and
/// the second ends the process at once, as it would without this.
void catch_interrupts();

bool interrupted();

} // namespace ampkit::app
