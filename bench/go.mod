module github.com/onlyonce-go/onlyonce/bench

go 1.26

require github.com/onlyonce-go/onlyonce v0.0.0

replace github.com/onlyonce-go/onlyonce => ../
