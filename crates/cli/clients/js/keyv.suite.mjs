// The published test suite of keyv with the store @keyv/redis.
import KeyvRedis from "@keyv/redis"
import keyvTestSuite from "@keyv/test-suite"
import Keyv from "keyv"
import * as vitest from "vitest"

const store = () => new KeyvRedis(`redis://127.0.0.1:${process.env.PORT}`)
keyvTestSuite(vitest, Keyv, store)
