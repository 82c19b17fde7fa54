-- audit: all entries of a key, in no order.
return redis.call('HVALS', key)
