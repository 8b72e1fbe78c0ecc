#pragma once

#include <vector>

#include "train/config_keys.h"

namespace ampkit::zoo {

/// Says of each key that not every optimizer or schedule has which ones do, in
/// Key::only_of, and in its help where that is empty.
void set_owners(std::vector<Key>& keys);

} // namespace ampkit::zoo
