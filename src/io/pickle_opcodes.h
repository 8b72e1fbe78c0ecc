#pragma once

#include <cstdint>
#include <string>

namespace ampkit::io {

/// The opcodes of a pickle that are read and written here: those of protocol 2
/// that torch.load(weights_only=True) accepts.
enum PickleOpcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8A,
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kGlobal = 'c',
  kReduce = 'R',
  kBuild = 'b',
  kBinPersId = 'Q',
  kProto = 0x80,
};

/// "REDUCE", as pickletools calls it, or "0x93" if it is none of these.
std::string pickle_opcode_name(uint8_t opcode);

} // namespace ampkit::io
