# Run by ctest; see CMakeLists.txt beside it for the variables.
function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output
        ERROR_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT code EQUAL 0)
        message(FATAL_ERROR "${ARGN}\nended with ${code}:\n${output}")
    endif()
    set(output "${output}" PARENT_SCOPE)
endfunction()

set(prefix ${WORK}/prefix)
# What an earlier run left must not stand in for what is installed now.
file(REMOVE_RECURSE ${prefix} ${WORK}/consumer)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER} -B ${WORK}/consumer
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS}
    -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DWANTED_VERSION=${VERSION})
run(${CMAKE_COMMAND} --build ${WORK}/consumer)
run(${CMAKE_COMMAND} --install ${WORK}/consumer --prefix ${prefix})

# The consumer prints the folder it takes the data from: the installed one, not the source tree.
run(${prefix}/bin/consumer)
if(NOT output STREQUAL "${prefix}/share/shardplan")
    message(FATAL_ERROR "The consumer takes its data from ${output}")
endif()
run(${prefix}/bin/shardplan list models)
