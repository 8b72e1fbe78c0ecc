#include "diagnose/tape.h"

namespace ampkit::diagnose {

void Tape::resolve(const at::Tensor& bits) {
  const auto* data = bits.const_data_ptr<uint8_t>();
  for (TapeValue& value : values) {
    if (value.pending >= 0) {
      value.flags = value.flags | flags_from(data[value.pending]);
      value.pending = -1;
    }
  }
  pending.clear();
}

} // namespace ampkit::diagnose
