#pragma once

namespace ampkit::app {

/// From now on the first SIGINT or SIGTERM only makes interrupted() true, and
/// the second ends the process at once, as it would without this.
void catch_interrupts();

bool interrupted();

/// From now on SIGUSR1 makes capture_asked() true, once.
void catch_capture_requests();

/// Whether a SIGUSR1 came since the last call.
bool capture_asked();

} // namespace ampkit::app
