-- unlock gives the sweepers' lock back, if it is still ours. ARGV: now, holder.
if redis.call('GET', key) == ARGV[2] then
  redis.call('DEL', key)
end
return 1
