# cmake -DOUTPUT=x.cpp -DFUNCTION=name -DINPUT=file -P embed_text.cmake
#
# Writes a C++ file that defines `std::string_view ampkit::zoo::FUNCTION()`,
# the text of INPUT; an empty INPUT gives an empty text.
set(text "")
if(INPUT)
  file(READ "${INPUT}" text)
endif()
set(delimiter ampkit_text)
string(FIND "${text}" ")${delimiter}\"" clash)
if(NOT clash EQUAL -1)
  message(FATAL_ERROR "${INPUT} holds the end mark of a raw string")
endif()
file(
  WRITE "${OUTPUT}"
  "#include \"report/assets.h\"

namespace ampkit::zoo {

std::string_view ${FUNCTION}() {
  return R\"${delimiter}(${text})${delimiter}\";
}

} // namespace ampkit::zoo
")
