#include "io/pickle_opcodes.h"

namespace ampkit::io {
namespace {

struct Named {
  PickleOpcode opcode;
  const char* name;
};

constexpr Named kNames[] = {
    {kMark, "MARK"},
    {kStop, "STOP"},
    {kBinInt, "BININT"},
    {kBinInt1, "BININT1"},
    {kBinInt2, "BININT2"},
    {kLong1, "LONG1"},
    {kNone, "NONE"},
    {kNewTrue, "NEWTRUE"},
    {kNewFalse, "NEWFALSE"},
    {kBinFloat, "BINFLOAT"},
    {kBinUnicode, "BINUNICODE"},
    {kEmptyTuple, "EMPTY_TUPLE"},
    {kTuple, "TUPLE"},
    {kTuple1, "TUPLE1"},
    {kTuple2, "TUPLE2"},
    {kTuple3, "TUPLE3"},
    {kEmptyList, "EMPTY_LIST"},
    {kAppend, "APPEND"},
    {kAppends, "APPENDS"},
    {kEmptyDict, "EMPTY_DICT"},
    {kSetItem, "SETITEM"},
    {kSetItems, "SETITEMS"},
    {kBinPut, "BINPUT"},
    {kLongBinPut, "LONG_BINPUT"},
    {kBinGet, "BINGET"},
    {kLongBinGet, "LONG_BINGET"},
    {kGlobal, "GLOBAL"},
    {kReduce, "REDUCE"},
    {kBuild, "BUILD"},
    {kBinPersId, "BINPERSID"},
    {kProto, "PROTO"},
};

} // namespace

std::string pickle_opcode_name(uint8_t opcode) {
  for (const Named& named : kNames) {
    if (named.opcode == opcode) {
      return named.name;
    }
  }
  constexpr const char* kDigits = "0123456789ABCDEF";
  return std::string("0x") + kDigits[opcode / 16] + kDigits[opcode % 16];
}

} // namespace ampkit::io
