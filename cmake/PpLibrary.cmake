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

# pp_embed(TARGET file symbol): the text of `file` as `const char symbol[]`, in generated/<symbol>.c.
function(pp_embed target file symbol)
  set(out ${PROJECT_BINARY_DIR}/generated/${symbol}.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_CURRENT_SOURCE_DIR}/${file} -DOUT=${out} -DSYMBOL=${symbol}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${file} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
