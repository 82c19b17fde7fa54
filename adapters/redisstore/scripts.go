package redisstore

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

// lua holds the scripts, one a method, and what all of them begin with.
//
//go:embed lua/*.lua
var lua embed.FS

// scripts are the store's statements.
type scripts struct {
	claim, get, renew, complete, release, park *redis.Script
	beginStep, endStep, steps                  *redis.Script
	sweep, unlock                              *redis.Script
	setting, addSetting, audit, addAudit       *redis.Script
}

func newScripts() scripts {
	return scripts{
		claim: script("claim"), get: script("get"), renew: script("renew"), complete: script("complete"),
		release: script("release"), park: script("park"),
		beginStep: script("beginstep"), endStep: script("endstep"), steps: script("steps"),
		sweep: script("sweep"), unlock: script("unlock"),
		setting: script("setting"), addSetting: script("addsetting"), audit: script("audit"), addAudit: script("addaudit"),
	}
}

// script reads a file that is built in, so that it cannot be missing.
func script(name string) *redis.Script {
	return redis.NewScript(source("common") + source(name))
}

func source(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}
