module github.com/onlyonce-go/onlyonce/bench

go 1.26

require github.com/onlyonce-go/onlyonce v0.0.0

require github.com/go-json-experiment/json v1.27.2 // indirect

replace github.com/onlyonce-go/onlyonce => ../
