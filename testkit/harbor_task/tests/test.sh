#!/bin/sh
echo "tests in $PWD"
if test -f /app/data.txt && grep -q "^$EXPECTED$" /app/hello.txt; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
