-- ARGV: prefix, id.
return record(ARGV[2])
