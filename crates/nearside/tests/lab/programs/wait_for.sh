# Each look starts programs, which takes the host far longer than a wait does: looks become rarer.
wait_for() { for pause in 0.02 0.03 0.05 $(yes 0.1 | head -n 40); do "$@" > /dev/null 2>&1 && return; sleep $pause; done; echo "never: $*"; }
