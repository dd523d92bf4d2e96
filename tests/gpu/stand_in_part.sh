# Stands in for `python -m testkit.gpu.parts PART`: parts that hang, start processes, die, fail or work. A shell, because
# it has begun within milliseconds. It adds a line to the file that PROOF_TRACE names: the part, and the ids of its
# processes: itself, a child in a session of its own, and one whose parent has ended.
name=$1
child=
orphan=
case $name in
hangs | leaves)
  setsid sleep 600 >/dev/null 2>&1 &
  child=,$!
  orphan=,$(sh -c 'setsid sleep 600 >/dev/null 2>&1 & echo $!')
  ;;
esac
echo "{\"part\": \"$name\", \"processes\": [$$$child$orphan]}" >>"$PROOF_TRACE"
case $name in
hangs)
  echo '{"small": true, "rows": ["so far"]}'
  sleep 600
  ;;
dies) kill -KILL $$ ;;
fails)
  echo '{"small": true, "rows": ["before"]}'
  echo '{"small": true, "failed": "fails: ValueError: it does not fit"}'
  ;;
misses) echo '{"small": true, "targets": {"all is well": false}}' ;;
*) echo "{\"small\": true, \"rows\": [\"$name\"], \"targets\": {\"all is well\": true}}" ;;
esac
