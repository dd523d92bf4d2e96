-- -> every task's record, as one moment saw them
ensure_index()
return redis.call('HGETALL', INFLIGHT)
