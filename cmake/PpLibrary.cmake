# SPDX-License-Identifier: Apache-2.0

# pp_library(NAME SOURCES a.c ... DEPENDS target ...): a static library pp_NAME. DEPENDS says which layers it may use.
function(pp_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(pp_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(pp_${name} PUBLIC pp_flags ${ARG_DEPENDS})
endfunction()

# pp_program(NAME SOURCES a.c DEPENDS target ...): an installed program.
function(pp_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# pp_rows(OUT file regex): the rows of a list *.def, which are its lines but for comments and #undef. C would take one that is not as
# `regex` says, and CMake would leave it out unseen: here it is an error.
function(pp_rows out file regex)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} rows REGEX "^[ \t]*[^/*# \t]")
  foreach(row IN LISTS rows)
    if(NOT row MATCHES "^${regex}$")
      message(FATAL_ERROR "${file}: '${row}' is no row that CMake understands: ${regex}")
    endif()
  endforeach()
  set(${out} "${rows}" PARENT_SCOPE)
endfunction()

# pp_embed(TARGET file symbol): the text of `file` as `const char symbol[]`, in generated/<symbol>.c.
function(pp_embed target file symbol)
  set(out ${PROJECT_BINARY_DIR}/generated/${symbol}.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_CURRENT_SOURCE_DIR}/${file} -DOUT=${out} -DSYMBOL=${symbol}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${file} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()

# pp_embed_all(TARGET symbol file ...): their texts by name (the file's, without folder and ending), in that order:
# `const struct { const char *name, *text; } symbol[]`, ended by a name of NULL.
function(pp_embed_all target symbol)
  set(declarations "")
  set(rows "")
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME_WE)
    string(MAKE_C_IDENTIFIER "${symbol}_${name}" text)
    pp_embed(${target} ${file} ${text})
    string(APPEND declarations "extern const char ${text}[];\n")
    string(APPEND rows "    {\"${name}\", ${text}},\n")
  endforeach()
  set(out ${PROJECT_BINARY_DIR}/generated/${symbol}.c)
  file(GENERATE OUTPUT ${out} CONTENT "#include <stddef.h>

${declarations}
struct pp_embedded {
    const char *name, *text;
};
extern const struct pp_embedded ${symbol}[];
const struct pp_embedded ${symbol}[] = {
${rows}    {NULL, NULL},
};
")
  target_sources(${target} PRIVATE ${out})
endfunction()
